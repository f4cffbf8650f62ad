"""The objects of the verbs, after ib_verbs.h; `softhca` re-exports what is public."""
