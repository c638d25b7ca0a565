"""Balance of a group of backends: from their loads to one word and what it rests on."""
