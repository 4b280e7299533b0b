"""The federation's part of the page: what a coordinator or a client did, from its state directory"""
