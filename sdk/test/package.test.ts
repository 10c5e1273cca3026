import { execFile } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, test } from 'vitest'
import packageJson from '../package.json' with { type: 'json' }

const run = promisify(execFile)
const root = join(import.meta.dirname, '..')

async function filesOf(folder: string, ending: string): Promise<string[]> {
  const names = await readdir(join(root, folder), { recursive: true })
  return names.filter((name) => name.endsWith(ending)).map((name) => join(root, folder, name))
}

/** A source file without its TSDoc, whose examples run in Node and print. */
async function readCode(file: string): Promise<string> {
  return (await readFile(file, 'utf8')).replaceAll(/^ *\/\*\*[\s\S]*?\*\//gm, '')
}

describe('built', () => {
  beforeAll(async () => {
    await run('npm', ['run', 'build'], { cwd: root })
  })

  test.each(Object.entries(packageJson.exports))('default: %s', async (path, { types, default: file }) => {
    const declared = await readFile(join(root, types), 'utf8')
    const source = `const names = Object.keys(await import(${JSON.stringify(join('@tollkeeper/sdk', path))})); console.log(names.join())`
    // A plain Node, from the repository's root, finds the package as its users do.
    const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', source], {
      cwd: join(root, '..'),
    })
    const names = stdout.trim().split(',')
    expect(names.length).toBeGreaterThan(0)
    for (const name of names) expect(declared).toContain(name)
    expect(file).toBe(types.replace('.d.ts', '.js'))
  })

  test('behavior: nothing in it points at a source file or a test', async () => {
    // Declarations keep .ts in their imports, which TypeScript reads as .d.ts.
    for (const file of await filesOf('dist', '.js')) {
      expect(file).not.toContain('.test.')
      expect(await readFile(file, 'utf8'), file).not.toMatch(/from '\.[^']*\.ts'/)
    }
  })
})

test('behavior: runs in browsers: only Express’ middleware and the files know Node', async () => {
  for (const file of await filesOf('src', '.ts')) {
    if (/\.test\.ts$|middleware\/express\.ts$|src\/files\//.test(file)) continue
    const source = await readCode(file)
    expect(source, file).not.toMatch(/from 'node:|\bprocess\.|\bBuffer\b/)
  }
})

test('behavior: the protocol has no clock, no randomness and no I/O', async () => {
  for (const file of await filesOf('src/protocol', '.ts')) {
    if (file.endsWith('.test.ts')) continue
    const source = await readCode(file)
    expect(source, file).not.toMatch(
      /Date\.now|new Date\(\)|Math\.random|crypto\.(?:random|getRandom|subtle)|fetch\(|console\./,
    )
  }
})
