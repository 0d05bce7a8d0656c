"""What a pass gives: tables, and what each of their columns means. It computes nothing that a file does not say."""
