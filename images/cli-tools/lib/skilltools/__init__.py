"""What the programs of the shared CLI tools image have in common. Only these programs import it."""
