"""Who may run what: teams, systems, envelopes and grants in tables, decided by Casbin (DESIGN 5)."""
