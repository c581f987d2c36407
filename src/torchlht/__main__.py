"""`python -m torchlht` is `lht`."""

from torchlht.cli import main

if __name__ == "__main__":  # worker processes import this file, too
    main()
