"""Page, API and metrics, fed by protocols."""
