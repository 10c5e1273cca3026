import { execFile } from 'node:child_process'
import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, expect, test } from 'vitest'
import { installPackages } from '../test/support/installed.ts'
import { root } from '../test/support/processes.ts'
import { useInstalled } from './install.ts'

// Tests the built SDK in a CommonJS project, with Jest and TypeScript set up as in docs/jest-and-nest.md.

const run = promisify(execFile)
const folder = useInstalled('jest')

beforeAll(async () => {
  const { sdk } = await installPackages()
  await cp(sdk, join(folder.path, 'node_modules/@tollkeeper/sdk'), { recursive: true })
  const page = await readFile(join(root, 'docs/jest-and-nest.md'), 'utf8')
  const [, config = ''] = /```js\n(.*?)```/s.exec(page) ?? []
  const [, tsconfig = ''] = /```json\n(.*?)```/s.exec(page) ?? []
  await writeFile(join(folder.path, 'jest.config.js'), config)
  await writeFile(join(folder.path, 'tsconfig.jest.json'), tsconfig)
}, 900_000)

const node = (...args: string[]) =>
  run(process.execPath, args, { cwd: folder.path }).catch(({ stdout, stderr }) => {
    throw new Error(`${stdout}\n${stderr}`)
  })

test('behavior: with the documented transform, Jest requires the SDK, and buys and sells', async () => {
  const { stderr } = await node('node_modules/jest/bin/jest.js', '--colors=false')
  expect(stderr).toMatch(/Tests: +2 passed, 2 total/)
})

test('error: without the documented transform, Jest can’t require the SDK', async () => {
  const config = join(folder.path, 'plain.config.js')
  await writeFile(
    config,
    "module.exports = { ...require('./jest.config.js'), transformIgnorePatterns: ['/node_modules/'] }",
  )
  await expect(node('node_modules/jest/bin/jest.js', '--config', config)).rejects.toThrow(
    'could not be executed as CommonJS',
  )
})

test('behavior: TypeScript’s node10 resolution finds the types of each subpath through typesVersions', async () => {
  const tsc = ['node_modules/typescript/bin/tsc', '--noEmit', '-p', '.']
  const { stdout } = await node(...tsc)
  expect(stdout).toBe('')
  const manifest = join(folder.path, 'node_modules/@tollkeeper/sdk/package.json')
  const { exports, typesVersions, ...others } = JSON.parse(await readFile(manifest, 'utf8'))
  const subpaths = Object.keys(exports).flatMap((path) => (path === '.' ? [] : [path.slice(2)]))
  expect(Object.keys(typesVersions['*']).sort()).toEqual(subpaths.sort())
  await writeFile(manifest, JSON.stringify({ ...others, exports }))
  await expect(node(...tsc)).rejects.toThrow(/TS2307.*@tollkeeper\/sdk\/express/)
})
