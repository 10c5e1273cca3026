import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseEnv, promisify } from 'node:util'
import { expect, inject } from 'vitest'
import { root } from './processes.ts'

/** Returns the commands in docs/deployment.md for the backup or the restore. */
export function documented(part: 'backup' | 'restore'): string {
  const documentation = readFileSync(join(root, 'docs/deployment.md'), 'utf8')
  const [, lines] =
    new RegExp(`<!-- ${part}: [^>]*-->\\s*\`\`\`\\n(.*?)\`\`\``, 's').exec(documentation) ?? []
  if (lines === undefined) throw new Error(`docs/deployment.md has no commands for the ${part}`)
  return lines
}

export type RestoreDrill = ReturnType<typeof openRestoreDrill>

/** Runs the backup and the restore of docs/deployment.md, for databases on the run's Postgres. */
export function openRestoreDrill() {
  const folder = mkdtempSync(join(tmpdir(), 'tollkeeper-drill-'))

  /** Runs commands as an operator would, with a stand-in for docker. */
  async function run(commands: string, databases: { SOURCE?: string; TARGET?: string }): Promise<void> {
    const standIn = join(root, 'test/support/composeStandIn.ts')
    const script = `docker() { node "${standIn}" "$@"; }\n${commands}`
    const { stderr } = await promisify(execFile)('sh', ['-euc', script], {
      cwd: folder,
      env: { ...process.env, NODE_OPTIONS: '', SERVER_URL: inject('postgresUrl'), ...databases },
    })
    expect(stderr).toBe('')
  }

  return {
    /** The folder in which the commands run and keep their files. */
    folder,
    /** Dumps a database. */
    async backUp(databaseUrl: string, commands = documented('backup')): Promise<void> {
      await run(commands, { SOURCE: new URL(databaseUrl).pathname.slice(1) })
    },
    /**
     * Restores the last dump.
     *
     * @returns the URL of the restored database, and what the restore added to `.env`.
     */
    async restore(): Promise<{ url: string; env: NodeJS.Dict<string> }> {
      const TARGET = `restored_${randomBytes(8).toString('hex')}`
      await run(documented('restore'), { TARGET })
      const url = new URL(inject('postgresUrl'))
      url.pathname = `/${TARGET}`
      return { url: url.href, env: parseEnv(readFileSync(join(folder, '.env'), 'utf8')) }
    },
    close: () => rmSync(folder, { recursive: true }),
  }
}
