"""A family of routers that estimates each model's median cost, with the verb that it needs."""
