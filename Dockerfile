# syntax=docker/dockerfile:1
# One image for all roles, chosen by the command: `docker run tollkeeper api`, `… keeper`, `… indexer`, `… doctor`.
# test/e2e/processes.test.ts runs these steps in a plain folder and starts every role from it.

FROM node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6 AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
COPY api/package.json api/
COPY apps/cli/package.json apps/cli/
COPY apps/dashboard/package.json apps/dashboard/
COPY apps/devstack/package.json apps/devstack/
COPY apps/mcp/package.json apps/mcp/
COPY bench/package.json bench/
COPY contracts/package.json contracts/
COPY examples/package.json examples/
COPY indexer/package.json indexer/
COPY keeper/package.json keeper/
COPY packages/chain/package.json packages/chain/
COPY packages/ledger/package.json packages/ledger/
COPY packages/runtime/package.json packages/runtime/
COPY sdk/package.json sdk/
COPY test/package.json test/
RUN npm ci --omit=dev --no-audit --no-fund

FROM node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6
WORKDIR /app
ENV NODE_ENV=production \
    API_HOST=0.0.0.0 \
    KEEPER_HOST=0.0.0.0 \
    INDEXER_HOST=0.0.0.0 \
    PONDER_TELEMETRY_DISABLED=true
COPY --from=dependencies /app ./
COPY LICENSE README.md tsconfig.json ponder.config.ts ./
COPY api api
COPY apps apps
COPY indexer indexer
COPY keeper keeper
COPY packages packages
COPY sdk sdk
COPY examples/hono examples/hono
COPY tools tools
COPY deploy/healthcheck.js deploy/
# Bundles the roles. `node apps/cli/tollkeeper.js` uses the bundles if they exist, which makes a start three times as fast.
RUN node tools/buildTollkeeper.ts --image
# This user owns no files, and no role writes files outside of /tmp. So `read_only: true` works if the container has a /tmp.
USER node
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["node", "deploy/healthcheck.js"]
ENTRYPOINT ["node", "apps/cli/tollkeeper.js"]
CMD ["--help"]
