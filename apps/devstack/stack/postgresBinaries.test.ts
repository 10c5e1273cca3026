import { execFileSync } from 'node:child_process'
import { chmod, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { findBinaries, prepareBinaries } from './postgresBinaries.ts'

let folder: string
let native: string

/** The platform's package as `npm ci --ignore-scripts` leaves it, without links. */
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollkeeper-binaries-'))
  await chmod(folder, 0o755)
  native = join(folder, 'package/native')
  const installed = await findBinaries(join(folder, 'unused'), false)
  const isNoLink = async (path: string) => !(await lstat(path)).isSymbolicLink()
  await cp(dirname(installed), native, { recursive: true, filter: isNoLink })
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const versionOf = (native: string) =>
  execFileSync(join(native, 'bin/initdb'), ['--version'], { encoding: 'utf8', stdio: 'pipe' })

async function linksIn(native: string): Promise<string[]> {
  const entries = await readdir(join(native, 'lib'), { withFileTypes: true })
  return entries.filter((entry) => entry.isSymbolicLink()).map(({ name }) => name)
}

test('default: creates the links that the install script didn’t create, and only once', async () => {
  const list: { target: string }[] = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8'))
  if (list.length > 0) expect(() => versionOf(native)).toThrow()
  const [one, other] = await Promise.all([
    prepareBinaries(native, folder, false),
    prepareBinaries(native, folder, false),
  ])
  expect([one, other]).toEqual([native, native])
  expect(versionOf(native)).toContain('PostgreSQL')
  expect((await linksIn(native)).sort()).toEqual(
    list.map(({ target }) => target.slice('native/lib/'.length)).sort(),
  )
  expect(await prepareBinaries(native, folder, false)).toBe(native)
})

test('behavior: creates the links in a copy if the package is not writable', async () => {
  await mkdir(join(folder, 'mine'))
  await chmod(join(folder, 'mine'), 0o777)
  for (const path of [native, join(native, 'lib')]) await chmod(path, 0o555)
  const isRoot = process.geteuid?.() === 0
  // Root can write anywhere, so the test would be meaningless.
  if (isRoot) process.seteuid?.('nobody')
  const copy = await prepareBinaries(native, join(folder, 'mine'), false).finally(() => {
    if (isRoot) process.seteuid?.(0)
  })
  for (const path of [native, join(native, 'lib')]) await chmod(path, 0o755)
  expect(copy).toBe(join(folder, 'mine/native'))
  expect(versionOf(copy)).toContain('PostgreSQL')
  expect(await linksIn(native)).toEqual([])
  expect((await stat(join(copy, 'lib'))).mode & 0o777).toBe(0o755)
})

test('behavior: copies a package that another user cannot enter, and links the copy', async () => {
  await chmod(join(folder, 'package'), 0o700)
  const copy = await prepareBinaries(native, join(folder, 'copy'), true)
  expect(copy).toBe(join(folder, 'copy/native'))
  expect(versionOf(copy)).toContain('PostgreSQL')
})

test('behavior: secp256k1 recovers the same key in JavaScript as in native code, which install scripts may not have built', () => {
  const require = createRequire(import.meta.url)
  const native = require('secp256k1')
  const plain = require('secp256k1/elliptic')
  const [message, key] = [new Uint8Array(32).fill(7), new Uint8Array(32).fill(9)]
  const { signature, recid } = native.ecdsaSign(message, key)
  expect(plain.ecdsaRecover(signature, recid, message, false)).toEqual(
    native.ecdsaRecover(signature, recid, message, false),
  )
})
