"""Memory that tells when it goes away."""
