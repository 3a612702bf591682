"""The P1 side: bounded, authorized, journaled observation of model servers. It deploys nothing."""
