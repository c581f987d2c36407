"""Ways to choose questions. Every file registers its own with `@strategy`."""
