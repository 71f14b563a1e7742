"""Large results, kept by digest and scoped to the run that made them."""
