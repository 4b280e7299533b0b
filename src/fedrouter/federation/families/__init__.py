"""How each family of routers is learned, written once against `Federation.ask`."""
