"""Independent truths: written apart from the library, slow and plain."""
