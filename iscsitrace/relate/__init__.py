"""What belongs together: stories of sessions, volumes and their paths, mirrors, and jobs of parallel streams."""
