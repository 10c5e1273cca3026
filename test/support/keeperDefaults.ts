import { readKeeperEnvironment } from '@tollkeeper/keeper/settings/config'

/** Default settings of a keeper in the tests' own process, as if no variable were set. */
export const keeperDefaults = {
  ...readKeeperEnvironment({
    DATABASE_URL: 'postgres://localhost/none',
    NETWORKS: 'localhost',
    RPC_URL_LOCALHOST: 'http://127.0.0.1:1',
    PLATFORM_WALLET: `0x${'00'.repeat(20)}`,
    KEEPER_PRIVATE_KEYS: `0x${'11'.repeat(32)}`,
  }),
  tracer: null,
}
