import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { committedDeployments } from '@tollkeeper/sdk/protocol/deployments'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { recordDeployment } from '../../apps/devstack/deploy/deploymentsFile.ts'
import { findDeployments, locateDeployments, type Place } from './deploymentsFile.ts'
import { readNetworkSettings } from './networkSettings.ts'

let folder: string
let checkout: Place
let installed: Place

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-deployments-'))
  checkout = { isCheckout: true, folder }
  installed = { isCheckout: false, folder }
})
afterEach(() => rm(folder, { recursive: true }))

const env = { NETWORKS: 'base', RPC_URL_BASE: 'https://node.example' }
const deployment = {
  batchSettlement: `0x${'1'.repeat(40)}`,
  splitterFactory: `0x${'2'.repeat(40)}`,
  tabSettlement: `0x${'4'.repeat(40)}`,
  usdc: `0x${'3'.repeat(40)}`,
  startBlock: 7,
}

test('default: uses the committed file in a checkout of the repository, and otherwise deployments.json in the working directory', () => {
  expect(locateDeployments({})).toMatch(/sdk.src.protocol.deployments\.json$/)
  expect(locateDeployments({}, checkout)).toMatch(/sdk.src.protocol.deployments\.json$/)
  expect(locateDeployments({}, installed)).toBe(join(folder, 'deployments.json'))
  expect(findDeployments({}, checkout)).toBeUndefined()
  expect(findDeployments({}, installed)).toBeUndefined()
})

test('args: resolves DEPLOYMENTS_FILE from the working directory', () => {
  for (const place of [checkout, installed]) {
    expect(locateDeployments({ DEPLOYMENTS_FILE: 'mine.json' }, place)).toBe(join(folder, 'mine.json'))
    expect(findDeployments({ DEPLOYMENTS_FILE: 'mine.json' }, place)).toBe(join(folder, 'mine.json'))
  }
})

test.each([
  ['DEPLOYMENTS_FILE is not set', {}],
  ['DEPLOYMENTS_FILE is set', { DEPLOYMENTS_FILE: 'mine.json' }],
])(
  'behavior: if %s, an installed program without deployments names the deploy command and reads the file that this command writes',
  async (_, named) => {
    const path = locateDeployments(named, installed)
    const read = () => readNetworkSettings({ ...env, ...named }, installed)
    expect(read).toThrow(
      `none on base in ${path}. To deploy them and record the deployment there, run DEPLOYER_PRIVATE_KEY=0x…`,
    )
    await recordDeployment(path, 'base', deployment)
    expect(read()).toMatchObject([{ network: { name: 'base' }, deployment }])
    // A new file also contains the deployments that this version knows.
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual({ ...committedDeployments, base: deployment })
  },
)

test('error: rejects a file without deployments', async () => {
  for (const text of ['{', '[1]', '{"base":{}}']) {
    await writeFile(join(folder, 'deployments.json'), text)
    expect(() => readNetworkSettings(env, installed)).toThrow(
      /^DEPLOYMENTS_FILE: expected a readable JSON file of deployments, got \S+deployments\.json: /,
    )
  }
})
