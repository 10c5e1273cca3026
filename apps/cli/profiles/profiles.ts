import { mkdir, open, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { isRecord } from '@tollkeeper/sdk/protocol/fields'
import { CliError } from '../terminal/cliError.ts'

/** An account that `tollkeeper login` stored: a provider's API key, and the only gateway to which commands send the key. */
export type Profile = { gatewayUrl: string; providerId: string; apiKey: string; scope: string }

export type Profiles = Readonly<Record<string, Profile>>

/** Name of the profile that commands use if the user names none. */
export const defaultProfile = 'default'

/** Returns the path of the file that stores the profiles. */
export function profilesPath(env: NodeJS.ProcessEnv): string {
  return join(env.XDG_CONFIG_HOME || join(homedir(), '.config'), 'tollkeeper', 'profiles.json')
}

/**
 * Reads the stored profiles; returns none if there is no file.
 *
 * @throws {CliError} `unsafe_file` if another user can write or replace the file: that user could redirect the key to another
 * gateway. `unreadable_file` if the file isn't valid.
 */
export async function readProfiles(path: string): Promise<Profiles> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw new CliError('unreadable_file', `${path}: ${error.message}`, error)
  })
  if (file === undefined) return {}
  try {
    requireOwn(path, await file.stat(), 'chmod 600')
    requireOwn(dirname(path), await stat(dirname(path)), 'chmod 700')
    return parseProfiles(await file.readFile('utf8'), path)
  } finally {
    await file.close()
  }
}

/** Stores the profiles completely or not at all. Only their owner can read the file. */
export async function writeProfiles(path: string, profiles: Profiles): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  requireOwn(dirname(path), await stat(dirname(path)), 'chmod 700')
  const temporary = `${path}.${process.pid}.tmp`
  try {
    const file = await open(temporary, 'wx', 0o600)
    try {
      await file.writeFile(`${JSON.stringify({ profiles }, null, 2)}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/** Checks the owner and the mode. Windows has no such modes, but it protects the home folder from other users. */
function requireOwn(path: string, { mode, uid }: { mode: number; uid: number }, remedy: string): void {
  const own = process.getuid?.()
  if (own === undefined) return
  if (uid !== own)
    throw new CliError('unsafe_file', `${path}: belongs to another user. Remove it and log in again`)
  if ((mode & 0o022) !== 0)
    throw new CliError('unsafe_file', `${path}: other users can write it. Run \`${remedy} ${path}\``)
}

function parseProfiles(text: string, path: string): Profiles {
  const unreadable = () =>
    new CliError('unreadable_file', `${path}: expected profiles, as \`tollkeeper login\` writes them`)
  let content: unknown
  try {
    content = JSON.parse(text)
  } catch {
    // Don't include the parser's message: it would quote the file, which contains keys.
    throw unreadable()
  }
  if (!isRecord(content) || !isRecord(content.profiles)) throw unreadable()
  for (const profile of Object.values(content.profiles)) {
    const fields = isRecord(profile)
      ? [profile.gatewayUrl, profile.providerId, profile.apiKey, profile.scope]
      : [null]
    if (!fields.every((field) => typeof field === 'string')) throw unreadable()
  }
  return content.profiles as Profiles
}

/** Whether two URLs belong to the same gateway. A trailing slash or the case of the host makes no difference. */
export function sameGateway(one: string, other: string): boolean {
  const normal = (text: string) => URL.parse(text)?.href.replace(/\/+$/, '') ?? text
  return normal(one) === normal(other)
}
