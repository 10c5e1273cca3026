import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { root } from '../support/processes.ts'
import { readSourceFiles, readTestNames } from './sourceFiles.ts'

const page = 'docs/conformance.md'

/** The sections of the specification that contain statements. */
const sections =
  '1 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 2.9 2.10 3 4 4.1 4.2 4.3 4.4 4.5 4.6 5 6 7 8.1 8.2 9'.split(' ')

type Row = { id: string; section: string; product: string; tests: string }

const read = (file: string) => readFileSync(join(root, file), 'utf8')
const text = read(page)
const rows = readRows(text)
const ids = new Set(rows.map(({ id }) => id))

/** Every text file of the repository. */
const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  cwd: root,
  encoding: 'utf8',
  maxBuffer: 2 ** 26,
})
  .split('\n')
  .filter((file) => file !== '' && existsSync(join(root, file)))
  .map((file) => ({ file, text: read(file) }))
  .filter((one) => !one.text.includes('\0'))

describe('rows', () => {
  test('behavior: rows are numbered in order, under the heading of their section', () => {
    const counts = new Map<string, number>()
    const expected = rows.map(({ section }) => {
      const number = (counts.get(section) ?? 0) + 1
      counts.set(section, number)
      return `${section}-${number}`
    })
    expect(rows.map(({ id }) => id)).toEqual(expected)
    expect(rows.length).toBeGreaterThan(200)
  })

  test('behavior: rows exist for each section of the specification, and for no other section', () => {
    expect([...new Set(rows.map(({ section }) => section))]).toEqual(sections)
  })

  test('behavior: rows name existing tests, with the group if a title occurs in several groups', () => {
    const names = Map.groupBy(readTestNames(readSourceFiles()), ({ file }) => file)
    const faults = rows.flatMap(({ id, tests }) =>
      tests.split(/(?<=`), (?=`)/).flatMap((reference) => {
        const [, , file = '', title = ''] = /^(`+) ?(\S+) › (.+?) ?\1$/.exec(reference) ?? []
        if (!existsSync(join(root, file)) || title === '') return [`${id}: no such file: ${reference}`]
        const titles = file.endsWith('.sol')
          ? readSolidityTests(read(file))
          : (names.get(file) ?? []).map(({ groups, name }) => [...groups, name].join(' › '))
        const found = new Set(titles.filter((one) => one.endsWith(` › ${title}`)))
        if (titles.includes(title) || found.size === 1) return []
        const fault = found.size === 0 ? 'no' : 'more than one group with'
        return [`${id}: ${fault} "${title}" in ${file}; nearest: "${nearest(title, titles)}"`]
      }),
    )
    expect(faults).toEqual([])
  })

  test('behavior: rows link to the code or to a page', () => {
    const defined = new Set([...text.matchAll(/^\[(`[^`]+`)\]: /gm)].map(([, label]) => label))
    const hasLink = ({ product }: Row) => {
      const labels = [...product.matchAll(/\[(`[^`]+`)\](?!\()/g)].map(([, label]) => label)
      return labels.every((label) => defined.has(label)) && (labels.length > 0 || product.includes(']('))
    }
    expect(rows.filter((row) => !hasLink(row)).map(({ id }) => id)).toEqual([])
  })

  test('behavior: a row has a reason below the table exactly if it deviates', () => {
    const marked = rows.filter(({ product }) => product.includes('_Deviates_')).map(({ id }) => id)
    const reasons = [...text.matchAll(/^- \*\*(\d[\d., -]*)\*\*: ([\s\S]*?)(?=\n- |\n\n|$(?![\s\S]))/gm)]
    expect(reasons.flatMap(([, of = '']) => of.split(', '))).toEqual(marked)
    const literal = /\bLiterally:|\bliteral way\b|^see \[/
    expect(reasons.filter(([, , reason = '']) => !literal.test(reason)).map(([, of]) => of)).toEqual([])
  })
})

test('behavior: each page links only to existing files and headings', () => {
  const faults = files
    .filter(({ file }) => file.endsWith('.md'))
    .flatMap(({ file, text }) =>
      [
        ...text.matchAll(/\]\(([^)#\s]*)(?:#([^)\s]*))?\)/g),
        ...text.matchAll(/^\[[^\]\n]+\]: ([^#\s]*)(?:#(\S*))?/gm),
      ].flatMap(([link, path = '', anchor]) => {
        if (path.includes('://')) return []
        const target = path === '' ? file : join(dirname(file), path)
        if (!existsSync(join(root, target))) return [`${file} ${link}: no such file`]
        const isThere = anchor === undefined || readAnchors(read(target)).includes(anchor)
        return isThere ? [] : [`${file} ${link}: no such heading`]
      }),
    )
  expect(faults).toEqual([])
})

describe('citations', () => {
  test('behavior: citations name an existing row or section', () => {
    const cited = files.flatMap(({ file, text }) =>
      [...text.matchAll(/\bconformance (\d+(?:\.\d+)?)(-\d+)?/g)].map(([citation, section = '', row]) => ({
        citation,
        file,
        isThere: row === undefined ? sections.includes(section) : ids.has(section + row),
      })),
    )
    expect(cited.length).toBeGreaterThan(50)
    expect(cited.filter(({ isThere }) => !isThere)).toEqual([])
  })

  test('behavior: no file names the specification itself, which is not part of the repository', () => {
    // The brackets keep the search from finding this line itself.
    expect(files.filter(({ text }) => /\bSPE[C]\b/.test(text)).map(({ file }) => file)).toEqual([])
  })
})

function readRows(markdown: string): Row[] {
  let heading = ''
  return markdown.split('\n').flatMap((line): Row[] => {
    heading = /^##+ ([\d.]+?)\.? /.exec(line)?.[1] ?? heading
    if (!/^\| \d/.test(line)) return []
    // A title may contain an escaped bar.
    const [, id = '', , product = '', tests = ''] = line
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim().replaceAll('\\|', '|'))
    return [{ id, section: heading, product, tests }]
  })
}

function readSolidityTests(source: string): string[] {
  return [...source.matchAll(/\bfunction ((?:test|invariant)_\w+)/g)].map(([, name = '']) => name)
}

/** Returns the anchors of a page's headings, as GitHub creates them. */
function readAnchors(markdown: string): string[] {
  return [...markdown.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-'),
  )
}

/** Returns the one of `titles` that shares the most words with `title`. */
function nearest(title: string, titles: readonly string[]): string | undefined {
  const words = new Set(wordsOf(title))
  const likeness = (other: string) => {
    const others = new Set(wordsOf(other))
    const shared = [...others].filter((word) => words.has(word)).length
    return shared / (words.size + others.size - shared)
  }
  return titles.toSorted((a, b) => likeness(b) - likeness(a))[0]
}

function wordsOf(title: string): string[] {
  return title.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []
}
