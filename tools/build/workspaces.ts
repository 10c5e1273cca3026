import { glob, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export type Manifest = {
  name: string
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
}

/** Reads the package.json of the root and of each workspace, by their paths in the repository. */
export async function readManifests(root: string): Promise<Map<string, Manifest>> {
  const manifests = new Map<string, Manifest>()
  const read = async (path: string) =>
    manifests.set(path, JSON.parse(await readFile(join(root, path), 'utf8')) as Manifest)
  await read('package.json')
  const { workspaces } = manifests.get('package.json') as Manifest & { workspaces: string[] }
  for await (const path of glob(
    workspaces.map((pattern) => `${pattern}/package.json`),
    { cwd: root },
  ))
    await read(path.replaceAll('\\', '/'))
  return manifests
}

/**
 * Returns the exact version of every package on which a workspace depends. All workspaces use the same version of a package.
 *
 * @throws if two workspaces depend on different versions of a package
 */
export async function readPins(root: string): Promise<Record<string, string>> {
  const pins: Record<string, string> = {}
  for (const [path, { dependencies, devDependencies }] of await readManifests(root))
    for (const [name, version] of Object.entries({ ...devDependencies, ...dependencies })) {
      if (name.startsWith('@tollkeeper/')) continue
      const known = pins[name]
      if (known !== undefined && known !== version)
        throw new Error(
          `${path} depends on ${name} ${version}, but another package.json on ${known}: use the same version in both`,
        )
      pins[name] = version
    }
  return pins
}
