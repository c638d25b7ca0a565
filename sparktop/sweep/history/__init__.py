"""All results that are kept: found, remarked, compared, deleted and brought back."""
