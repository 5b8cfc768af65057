"""Made by `python -m skillexec.statements.render` from core.py: change it there."""

VERSION = 1  # of the tables that these statements are made for

CHAIN = """
    WITH RECURSIVE chain(depth, system, system_disabled, team, team_disabled, is_root, origin, inherit) AS
    (SELECT 0 AS depth, systems.name AS system, systems.disabled AS system_disabled, teams.name AS team, teams.disabled AS team_disabled, teams.is_root AS is_root, teams.origin AS origin, teams.inherit AS inherit
    FROM systems JOIN teams ON teams.name = systems.team
    WHERE systems.name = :system UNION ALL SELECT chain.depth + 1 AS anon_1, systems.name AS system, systems.disabled AS system_disabled, teams.name AS team, teams.disabled AS team_disabled, teams.is_root AS is_root, teams.origin AS origin, teams.inherit AS inherit
    FROM chain JOIN systems ON systems.name = chain.origin JOIN teams ON teams.name = systems.team
    WHERE chain.depth < 8)
    SELECT chain.system, chain.system_disabled, chain.team, chain.team_disabled, chain.is_root, chain.origin, chain.inherit, envelopes.skill IS NOT NULL AS in_envelope, grants.source, grants.pin
    FROM chain LEFT OUTER JOIN envelopes ON envelopes.team = chain.team AND envelopes.skill = :skill LEFT OUTER JOIN grants ON grants.system = chain.system AND grants.skill = :skill ORDER BY chain.depth
"""

APPROVAL = """
    SELECT approvals.system, approvals.skill, approvals.digest, approvals.network, approvals.expires, approvals.approved_by, approvals.approved_at
    FROM approvals
    WHERE approvals.system = :system AND approvals.skill = :skill AND approvals.digest = :digest
"""

SECRETS = """
    SELECT secrets.name, secrets.reference, secrets.team, secrets.skill
    FROM secrets
    WHERE (secrets.team = :team OR secrets.team = '') AND (secrets.skill = :skill OR secrets.skill = '')
"""

HEAD = """
    SELECT audit.seq, audit.hash
    FROM audit
    WHERE audit.seq = (SELECT max(audit.seq) AS max_1
    FROM audit)
"""

BEFORE = """
    SELECT (SELECT max(audit.seq) AS max_1
    FROM audit) AS seq, (SELECT audit.hash
    FROM audit
    WHERE audit.seq = (SELECT max(audit.seq) AS max_2
    FROM audit)) AS hash, (SELECT audit_kinds.id
    FROM audit_kinds
    WHERE audit_kinds.actor = :actor AND audit_kinds.event = :event AND audit_kinds.system = :system AND audit_kinds.team = :team AND audit_kinds.skill = :skill AND audit_kinds.outcome = :outcome) AS kind, EXISTS (SELECT audit.seq
    FROM audit JOIN audit_kinds ON audit_kinds.id = audit.kind
    WHERE audit.run = :run AND audit_kinds.event = 'run.started') AS started, EXISTS (SELECT audit.seq
    FROM audit
    WHERE audit.run = :run) AS known
"""

KIND = """
    SELECT audit_kinds.id
    FROM audit_kinds
    WHERE audit_kinds.actor = :actor AND audit_kinds.event = :event AND audit_kinds.system = :system AND audit_kinds.team = :team AND audit_kinds.skill = :skill AND audit_kinds.outcome = :outcome
"""

KNOWN_RUN = """
    SELECT EXISTS (SELECT audit.seq
    FROM audit
    WHERE audit.run = :run) AS known
"""

NEW_KIND = """
    INSERT INTO audit_kinds (actor, event, system, team, skill, outcome) VALUES (:actor, :event, :system, :team, :skill, :outcome)
"""

NEW_RECORD = """
    INSERT INTO audit (seq, hash, body, kind, time, run) VALUES (:seq, :hash, :body, :kind, :time, :run)
"""

OPEN_RUNS = """
    SELECT audit.body, audit.hash
    FROM audit JOIN audit_open_runs ON audit_open_runs.seq = audit.seq ORDER BY audit.seq
"""

OPEN_RUN = """
    INSERT INTO audit_open_runs (run, seq) VALUES (:run, :seq)
"""

CLOSE_RUN = """
    DELETE FROM audit_open_runs WHERE audit_open_runs.run = :run
"""
