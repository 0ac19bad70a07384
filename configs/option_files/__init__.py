"""Option files of other training repositories as this project's sections: recognised by shape, mapped, and told."""
