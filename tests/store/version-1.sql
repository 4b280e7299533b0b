BEGIN TRANSACTION;
CREATE TABLE bundles (
            place INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL, path TEXT NOT NULL, at DOUBLE NOT NULL, withdrawn DOUBLE);
INSERT INTO "bundles" VALUES(1,'sha256:0','bundles/a',1700000000.0,NULL);
CREATE TABLE decisions (
            id TEXT PRIMARY KEY NOT NULL, time DOUBLE NOT NULL, "key" TEXT NOT NULL, bundle TEXT NOT NULL,
            version BIGINT NOT NULL, family TEXT NOT NULL, tradeoff DOUBLE NOT NULL, chosen TEXT NOT NULL,
            reason TEXT NOT NULL, session TEXT, served TEXT, predicted_accuracy DOUBLE, predicted_cost DOUBLE,
            propensity DOUBLE NOT NULL, explored BOOLEAN NOT NULL, embedding BLOB, encoder TEXT NOT NULL,
            text TEXT, task TEXT, input_tokens BIGINT, output_tokens BIGINT, cost DOUBLE, baseline_cost DOUBLE,
            latency_ms DOUBLE NOT NULL, overhead_ms DOUBLE NOT NULL, attempts BIGINT NOT NULL,
            status TEXT NOT NULL, streamed BOOLEAN NOT NULL, score DOUBLE, scored_by TEXT, scored_at DOUBLE);
INSERT INTO "decisions" VALUES('018bcfe5680000000000000000000001',1700000000.0,'key-0123456789ab','sha256:0',3,'kmeans',12.5,'large','routed',NULL,'large',NULL,NULL,0.125,1,X'000102030405060708090A0B0C0D0E0F','all-MiniLM-L6-v2','It''s a prompt','chat',100,20,0.25,1.0,0.0,0.0,1,'ok',0,0.5,'user',1700000100.0);
INSERT INTO "decisions" VALUES('018bcfe6526000000000000000000002',1700000060.5,'key-0123456789ab','sha256:0',3,'kmeans',12.5,'large','routed','s',NULL,NULL,NULL,1.0,0,NULL,'all-MiniLM-L6-v2',NULL,NULL,NULL,NULL,NULL,NULL,0.0,0.0,1,'timeout',0,NULL,NULL,NULL);
CREATE TABLE feedback (
            place INTEGER PRIMARY KEY AUTOINCREMENT, decision TEXT NOT NULL, score DOUBLE NOT NULL, "by" TEXT NOT NULL,
            at DOUBLE NOT NULL);
INSERT INTO "feedback" VALUES(1,'018bcfe5680000000000000000000001',0.5,'user',1700000100.0);
CREATE TABLE keys (
            id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, created DOUBLE NOT NULL,
            disabled BOOLEAN NOT NULL, daily_budget DOUBLE, rate_per_minute BIGINT);
INSERT INTO "keys" VALUES('key-0123456789ab','web','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1700000000.0,0,2.5,60);
CREATE TABLE schema_version (version BIGINT NOT NULL PRIMARY KEY);
INSERT INTO "schema_version" VALUES(1);
CREATE INDEX decisions_by_time ON decisions (
            time, id, "key", served, chosen, status, input_tokens, output_tokens, cost, baseline_cost, predicted_cost,
            score);
CREATE INDEX decisions_by_key ON decisions ("key", time, cost);
CREATE INDEX feedback_by_decision ON feedback (decision);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('feedback',1);
INSERT INTO "sqlite_sequence" VALUES('bundles',1);
COMMIT;
