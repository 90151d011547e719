"""What proca puts on a queue: schemas, normalisation, sealed personal data, key stores. Pure."""
