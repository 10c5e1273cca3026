import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runCli } from '../support/cli.ts'
import { root } from '../support/processes.ts'

describe('docs/networks.md', () => {
  let page: string
  let folder: string
  beforeAll(async () => {
    page = await readFile(join(root, 'docs/networks.md'), 'utf8')
    folder = await mkdtemp(join(tmpdir(), 'tollkeeper-networks-page-'))
    await writeFile(join(folder, 'networks.json'), block('json networks.json'))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  function block(tag: string): string {
    const [, text] = page.split(`\n\`\`\`${tag}\n`)
    if (text === undefined) throw new Error(`no block ${tag}`)
    return text.split('\n```')[0] as string
  }

  test('the page’s example command reads the page’s example file', async () => {
    const [variable = '', command = ''] = block('sh').split('\n')
    const [, name = '', value] = /^export (\w+)=(.*)$/.exec(variable) ?? []
    const args = command.replace('npx --no-install tollkeeper ', '').split(' ')
    const { status, stdout, stderr } = await runCli(args, { cwd: folder, env: { [name]: value } })
    expect([status, stderr]).toEqual([0, ''])
    expect(stdout).toContain('Prices as given: 0.01 gwei')
  })

  test('without the file, a command rejects the network and names the networks that it knows', async () => {
    const { status, stderr } = await runCli(['costs', '--network', 'acme-chain'], { cwd: folder })
    expect(status).not.toBe(0)
    expect(stderr).toMatch(/base, base-sepolia, .*avalanche-fuji/)
  })

  test('a command reports a wrong file in one line, and doctor reports it as a failed check', async () => {
    const file = join(folder, 'wrong.json')
    await writeFile(file, '{"base": {}}')
    const env = { NETWORKS_FILE: file }
    const { status, stderr } = await runCli(['costs', '--network', 'base'], { cwd: folder, env })
    expect(status).not.toBe(0)
    expect(stderr).toMatch(
      /^tollkeeper: NETWORKS_FILE: expected networks as docs\/networks\.md describes them, got .*\n$/,
    )
    const doctor = await runCli(['doctor', '--json'], { cwd: folder, env })
    expect(JSON.parse(doctor.stdout).checks).toContainEqual(
      expect.objectContaining({ status: 'fail', found: expect.stringContaining('NETWORKS_FILE: expected') }),
    )
  })

  test('the page’s example program defines a network and opens a client on it', async () => {
    const run = promisify(execFile)
    const flags = ['--conditions=@tollkeeper/source', '--input-type=module-typescript', '--eval', block('ts')]
    const { stdout } = await run(process.execPath, flags, { cwd: root })
    expect(stdout).toBe('function eip155:4242424\n')
  })
})
