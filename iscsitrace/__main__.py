"""``python -m iscsitrace`` is the command ``iscsitrace``."""

from iscsitrace.cli import main

if __name__ == "__main__":
    main()
