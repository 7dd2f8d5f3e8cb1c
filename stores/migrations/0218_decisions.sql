-- What a person said to the question that a step is. What was answered before says none until the tables are made again.
ALTER TABLE run_steps ADD COLUMN decision TEXT; -- RunApprovalDecided as JSON; null where nothing was asked or answered
