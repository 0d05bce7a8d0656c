"""What limits a session, and which known diseases it has: findings with evidence and advice, from tables."""
