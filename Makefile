# What a developer types. The work is in scripts/; docs/development.md explains the stages.

.DEFAULT_GOAL := help
.PHONY: help run test check sim bench conformance demo advisories clean
# rustup must tell, not download, when the toolchain is missing.
export RUSTUP_AUTO_INSTALL := 0

ARGS ?=
SEEDS ?= 100

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

run: ## Start Floe on ./floe-data (ARGS="further flags")
	@sh scripts/preflight
	@cargo build --release --locked -p floe
	@exec target/release/floe serve --data ./floe-data $(ARGS)

test: ## Everything that must pass: installs what it needs into .tools
	@scripts/test

check: ## Format, lints, licences, unused dependencies and tidy, without the tests that run Floe
	@scripts/test check

sim: ## The simulation over SEEDS seeds (100)
	@sh scripts/preflight
	@scripts/tools
	@FLOE_SIM_SEEDS=$(SEEDS) scripts/cargo nextest run --locked --workspace --filterset 'package(floe-sim)' $(ARGS)

bench: ## The measurements beside Kafka; needs Java (ARGS=which)
	@sh scripts/preflight
	@scripts/tools
	@benches/run $(ARGS)

conformance: ## Other people's test suites against Floe; needs Go, Node, Java (ARGS=which)
	@sh scripts/preflight
	@scripts/tools
	@conformance/run $(ARGS)

demo: ## Floe with real data and an SQL prompt on it
	@sh scripts/preflight
	@scripts/tools
	@scripts/demo $(ARGS)

advisories: ## Dependencies against the RustSec database, where it can be reached
	@scripts/tools
	@scripts/advisories

clean: ## Remove what was built and installed here; ./floe-data stays
	@rm -rf target .tools
