import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { readConfig } from '#api/config'
import { parseKeeperConfig } from '#keeper/config'
import { parseIndependentConfig } from '#keeper/independent/config'
import { networkNames } from '#protocol/networks'
import { parseIndexerOptions } from '../indexer/config.ts'

const root = fileURLToPath(new URL('../', import.meta.url))
const example = await readFile(`${root}/.env.example`, 'utf8')
const named = [...example.matchAll(/^#?([A-Z][A-Z0-9_]*)=/gm)].map(([, name]) => name as string)

const valid = {
  DATABASE_URL: 'postgres://127.0.0.1/none',
  PLATFORM_WALLET: `0x${'11'.repeat(20)}`,
  MACAROON_SECRETS: `kid:${'00'.repeat(32)}`,
  KEEPER_PRIVATE_KEYS: `0x${'22'.repeat(32)}`,
  KEEPER_GATEWAY_URL: 'https://gateway.example',
  RPC_URL_LOCALHOST: 'http://127.0.0.1:8545',
}

/** What a process's config asks its environment for. */
function namesReadBy(read: (env: Record<string, string | undefined>) => unknown): string[] {
  const names = new Set<string>()
  const values: Record<string, string | undefined> = valid
  read(
    new Proxy(values, {
      get: (target, name) => {
        if (typeof name === 'string') names.add(name)
        return target[String(name)]
      },
    }),
  )
  return [...names]
}

/** Variables that stand in a script's text, where it has no config of its own. */
async function namesIn(...files: string[]): Promise<string[]> {
  const texts = await Promise.all(files.map((file) => readFile(`${root}/${file}`, 'utf8')))
  return texts.flatMap((text) => [
    ...[...text.matchAll(/process\.env\.([A-Z_]+)/g)].map(([, name]) => name as string),
    ...[...text.matchAll(/variable: '([A-Z_]+)'/g)].map(([, name]) => name as string),
    ...[...text.matchAll(/const \{ ([A-Z_, ]+) \} = process\.env/g)].flatMap(([, names = '']) =>
      names.split(', '),
    ),
  ])
}

test.each([
  ['api', readConfig],
  ['keeper', parseKeeperConfig],
  ['independent keeper', parseIndependentConfig],
  ['indexer', parseIndexerOptions],
] as const)('default: names every variable that the %s reads', (_, read) => {
  expect(named).toEqual(expect.arrayContaining(namesReadBy(read)))
})

test('default: names every network, and what the scripts and examples read', async () => {
  const upper = networkNames.map((name) => name.toUpperCase().replaceAll('-', '_'))
  expect(named).toEqual(expect.arrayContaining(upper.map((name) => `RPC_URL_${name}`)))
  expect(named).toEqual(expect.arrayContaining(await scripted()))
})

test('behavior: names nothing twice, and nothing that no process reads', async () => {
  expect(named).toHaveLength(new Set(named).size)
  const read = new Set([
    ...[readConfig, parseKeeperConfig, parseIndependentConfig, parseIndexerOptions].flatMap(namesReadBy),
    ...networkNames.map((name) => `RPC_URL_${name.toUpperCase().replaceAll('-', '_')}`),
    ...(await scripted()),
  ])
  expect(named.filter((name) => !read.has(name))).toEqual([])
})

function scripted(): Promise<string[]> {
  return namesIn(
    'scripts/start.ts',
    'scripts/deploy.ts',
    'examples/provider/main.ts',
    'examples/buyer/main.ts',
  )
}
