import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }

const path = fileURLToPath(new URL('./needNode.js', import.meta.url))

/** Runs needNode.js and then a line of code, in a process whose Node pretends to have this version. */
function runIn(version: string) {
  const renamed = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
  const args = [
    '--import',
    `data:text/javascript,${renamed}`,
    '--import',
    path,
    '--eval',
    'console.log("ran")',
  ]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  return { status, stdout, stderr }
}

test.each(['22.18.0', '22.19.1', '24.0.0'])('default: continues in Node %s', (version) => {
  expect(runIn(version)).toMatchObject({ status: 0, stdout: 'ran\n' })
})

test.each(['20.20.2', '22.17.1'])(
  'error: reports the needed version in Node %s, and runs nothing',
  (version) => {
    const { status, stdout, stderr } = runIn(version)
    expect([status, stdout]).toEqual([2, ''])
    expect(stderr).toContain(`needs Node 22.18 or newer, but runs in ${version}`)
    expect(stderr.trim().split('\n')).toHaveLength(1)
  },
)

test('behavior: npm start and npm run demo check Node’s version first, and package.json states the same minimum version as the check', () => {
  for (const script of [packageJson.scripts.start, packageJson.scripts.demo])
    expect(script).toMatch(/^exec node --import \.\/apps\/devstack\/needNode\.js /)
  expect(packageJson.engines.node).toBe('>=22.18')
})
