import { glob, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ownCommand } from '@tollkeeper/runtime/ownCommand'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import packageJson from '../../package.json' with { type: 'json' }
import sdkPackageJson from '../../sdk/package.json' with { type: 'json' }
import { createManifest, repositoryOf } from '../../tools/build/manifest.ts'
import { readPins } from '../../tools/build/workspaces.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (path: string) => readFile(join(root, path), 'utf8')
const built = new Set([
  'node_modules',
  'dist',
  'artifacts',
  'cache',
  'coverage',
  'reports',
  '.ponder',
  '.git',
])
const exclude = (path: string) => path.split('/').some((part) => built.has(part))

test('behavior: docs never suggest the unpublished npm name, and code takes the command from one constant', async () => {
  const patterns = ['**/*.{md,ts,tsx,js,yml,yaml}', '.github/**/*.yml', '.env.example']
  const paths: string[] = []
  for await (const path of glob(patterns, { cwd: root, exclude })) paths.push(path)
  expect(paths.length).toBeGreaterThan(800)
  const [plain, constant]: [string[], string[]] = [[], []]
  for (const path of paths) {
    const text = await read(path)
    if (/npx (-y )?tollkeeper|npm (i|install) (@tollkeeper\/sdk|tollkeeper)\b/.test(text)) plain.push(path)
    const isCode = /\.tsx?$/.test(path) && !/(^|\/)test\/|\.test\.tsx?$/.test(path)
    if (isCode && text.includes(ownCommand)) constant.push(path)
  }
  // Only the file of the constant contains the unpublished name, in the constant's comment.
  expect(plain).toEqual(['sdk/src/middleware/ownCommand.ts'])
  expect(constant).toEqual(['sdk/src/middleware/ownCommand.ts'])
})

test('behavior: a person starts the release, and only the release can publish', async () => {
  const workflow = parse(await read('.github/workflows/release.yml'))
  expect(Object.keys(workflow.on)).toEqual(['workflow_dispatch'])
  expect(workflow.on.workflow_dispatch.inputs.publish.default).toBe(false)
  expect(workflow.jobs.release.permissions).toEqual({ contents: 'read', 'id-token': 'write' })
  const steps: { run?: string; if?: string }[] = workflow.jobs.release.steps
  const publishing = steps.filter(({ run }) => /npm publish (?!--dry-run)/.test(run ?? ''))
  expect(publishing).toMatchObject([
    { if: 'inputs.publish', run: expect.stringMatching(/sdk\/dist\n.*dist\/tollkeeper\n/) },
  ])
  // A person's input reaches a script only through the environment.
  expect(steps.filter(({ run }) => run?.includes('${{'))).toEqual([])

  const config = { access: 'public', provenance: true }
  expect(sdkPackageJson.publishConfig).toEqual(config)
  expect(createManifest(packageJson, [], await readPins(root))).toMatchObject({ publishConfig: config })
})

test('behavior: the packages name the repository from which CI builds them', () => {
  const env = { GITHUB_SERVER_URL: 'https://git.example', GITHUB_REPOSITORY: 'somebody/tollkeeper' }
  expect(repositoryOf('sdk', env)).toEqual({
    repository: { type: 'git', url: 'git+https://git.example/somebody/tollkeeper.git', directory: 'sdk' },
  })
  expect(repositoryOf('sdk', {})).toEqual({})
})

test('behavior: both packages have one version, which the changelog and the tarballs’ names repeat', async () => {
  const { version } = packageJson
  expect(sdkPackageJson.version).toBe(version)
  expect(await read('CHANGELOG.md')).toContain(`## ${version}, `)
  const readme = await read('README.md')
  for (const name of ['tollkeeper-sdk', 'tollkeeper']) expect(readme).toContain(`/${name}-${version}.tgz`)
})
