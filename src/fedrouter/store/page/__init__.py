"""What the gateway's page keeps in the store and asks of it: sessions, applied settings, searches and sums."""
