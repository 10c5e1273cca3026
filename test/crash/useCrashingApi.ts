import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll } from 'vitest'
import { useGateway, useShop } from '../support/useGateway.ts'
import { killAll, startChild } from './children.ts'
import type { CrashingApiOptions } from './crashingApi.ts'

const macaroonKey = '07'.repeat(32)

/**
 * Starts a gateway for the tests of a file, and lets them start more gateways with its settings in separate processes
 * that die at a given step.
 */
export function useCrashingApi() {
  const gateway = useGateway({ macaroonSecrets: [{ kid: 'test', key: Buffer.from(macaroonKey, 'hex') }] })
  const shop = useShop(gateway)
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tollkeeper-crash-'))
    await writeFile(join(folder, 'deployments.json'), JSON.stringify(gateway.chain.deployments))
  })
  afterEach(killAll)
  afterAll(() => rm(folder, { recursive: true, force: true }))

  return {
    gateway,
    shop,
    startApi(crashAt: CrashingApiOptions['crashAt']): ChildProcess {
      const { macaroonSecrets, ...settings } = gateway.settings
      return startChild('crashingApi.ts', {
        databaseUrl: gateway.databaseUrl,
        rpcUrl: gateway.chain.url,
        deploymentsFile: join(folder, 'deployments.json'),
        receiptKeyFile: join(folder, 'receipt-keys.json'),
        settings,
        macaroonKey,
        crashAt,
      } satisfies CrashingApiOptions)
    },
  }
}
