"""The model fitted to steady cycles: regression, and how far each point is off."""
