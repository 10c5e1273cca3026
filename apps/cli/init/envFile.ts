import { link, open, readFile, rename, rm } from 'node:fs/promises'
import { parseEnv } from 'node:util'
import type { VariableName } from '@tollkeeper/runtime/env'
import { variables } from '@tollkeeper/runtime/variables'
import { CliError } from '../terminal/cliError.ts'

export type Settings = Readonly<Record<string, string>>

/** Reads a file of variables. @returns null if there is none. */
export async function readEnvFile(path: string): Promise<Settings | null> {
  try {
    return parseEnv(await readFile(path, 'utf8')) as Settings
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw new CliError('unreadable_file', `--file: ${(error as Error).message}`, error)
  }
}

/** Formats variables as lines of a file, each with a comment. */
export function renderEnvFile(settings: Settings): string {
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${quote(name, value)}`)
  return `# Made by \`tollkeeper init\`. Holds secrets: keep a backup, and keep it out of version control.
# docs/configuration.md has all variables.
${lines.join('\n')}
`
}

/** Quotes a value that programs would misread without quotes. */
function quote(name: string, value: string): string {
  if (/^[\w.,:/@+=%~?&-]*$/.test(value)) return value
  const mark = ["'", '"', '`'].find((one) => !value.includes(one))
  if (mark === undefined || value.includes('\n'))
    throw new CliError(
      'invalid_flags',
      `${name}: contains quotation marks that can't be written to a file of variables`,
    )
  return `${mark}${value}${mark}`
}

/** Returns the lines that differ, as `- old` and `+ new`. Secrets are hidden. */
export function diffSettings(before: Settings, after: Settings): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])]
  return names.flatMap((name) => {
    if (before[name] === after[name]) return []
    const line = (mark: string, value: string | undefined) =>
      value === undefined ? [] : [`${mark} ${name}=${isSecret(name) ? '(hidden)' : value}`]
    return [...line('-', before[name]), ...line('+', after[name])]
  })
}

/** Whether a variable is secret. An unknown variable may contain anything, so it counts as secret. */
function isSecret(name: string): boolean {
  return name in variables ? nameIsSecret(name as VariableName) : true
}

function nameIsSecret(name: VariableName): boolean {
  const { isSecret = false } = variables[name].parser as { isSecret?: boolean }
  return isSecret || /_URL|SECRETS|KEYS$/.test(name)
}

/**
 * Writes a file completely or not at all, readable only by its owner.
 *
 * @throws {CliError} `file_exists` if the file exists and must not be overwritten.
 */
export async function writeOwnFile(
  path: string,
  content: string,
  { overwrite }: { overwrite: boolean },
): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`
  try {
    const file = await open(temporary, 'wx', 0o600)
    try {
      await file.writeFile(content)
      await file.sync()
    } finally {
      await file.close()
    }
    if (overwrite) await rename(temporary, path)
    // Unlike a rename, creating a link never replaces a file, even if another process created that file a moment ago.
    else await link(temporary, path)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EEXIST')
      throw new CliError('file_exists', `${path} exists. Give --force to overwrite it`, error)
    throw new CliError('unwritable_file', `${path}: ${message}`, error)
  } finally {
    await rm(temporary, { force: true })
  }
}
