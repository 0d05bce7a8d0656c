"""Commands that read captures."""
