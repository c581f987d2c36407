"""`python -m torchlht` is `lht`."""

from torchlht.cli import main

main()
