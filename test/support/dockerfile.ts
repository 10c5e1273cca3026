import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, readFile } from 'node:fs/promises'
import { basename, dirname, join, matchesGlob, relative } from 'node:path'
import { promisify } from 'node:util'
import { type Copy, DockerfileParser, type Env, type From, type Instruction } from 'dockerfile-ast'
import { root } from './processes.ts'

const run = promisify(execFile)

export type Image = {
  /** The folder that is `/app` in the image. */
  folder: string
  env: Record<string, string>
  entrypoint: string[]
  healthcheck: string[]
  user: string | undefined
}

/**
 * Executes the steps of our Dockerfile without Docker: `/app` of each stage is a plain folder, and RUN runs
 * in it, except for `npm ci`, whose result the checkout already has. Throws on unknown steps.
 *
 * @param folder an empty one
 *
 * @param path where programs are searched
 */
export async function buildImage(folder: string, path: string): Promise<Image> {
  const [dockerfile, ignored] = await Promise.all(
    ['Dockerfile', '.dockerignore'].map((name) => readFile(join(root, name), 'utf8')),
  )
  const isIgnored = (file: string) =>
    (ignored ?? '').split('\n').some((glob) => glob !== '' && matchesGlob(relative(root, file), glob))
  const stages = new Map<string, string>()
  let image: Image = { folder, env: {}, entrypoint: [], healthcheck: [], user: undefined }
  for (const step of DockerfileParser.parse(dockerfile ?? '').getInstructions()) {
    const words = step.getArguments().map((word) => word.getValue())
    switch (step.getKeyword()) {
      case 'FROM': {
        const stage = (step as From).getBuildStage() ?? 'final'
        image = { ...image, folder: join(folder, stage), env: {} }
        stages.set(stage, image.folder)
        await mkdir(image.folder)
        break
      }
      case 'WORKDIR':
        if (words.join() !== '/app') throw new Error(`expected WORKDIR /app, got ${words}`)
        break
      case 'ENV':
        for (const one of (step as Env).getProperties()) image.env[one.getName()] = one.getValue() ?? ''
        break
      case 'COPY': {
        const stage = (step as Copy).getFromFlag()?.getValue()
        const to = join(image.folder, words.pop() ?? '')
        const isFolder = words.length > 1 || to.endsWith('/')
        // Hard links, because copying everything that is installed would take seconds.
        if (stage) await run('cp', ['-al', `${stages.get(stage) ?? stage}/.`, to])
        else
          for (const from of words.map((word) => join(root, word)))
            await cp(from, isFolder ? join(to, basename(from)) : to, {
              recursive: true,
              verbatimSymlinks: true,
              filter: (file) => !isIgnored(file),
            })
        break
      }
      case 'RUN': {
        const env = { ...image.env, PATH: path, HOME: process.env.HOME }
        if (words.slice(0, 3).join(' ') === 'npm ci --omit=dev') await linkInstalled(image.folder)
        else await run('sh', ['-c', words.join(' ')], { cwd: image.folder, env })
        break
      }
      case 'USER':
        image.user = words[0]
        break
      case 'ENTRYPOINT':
        image.entrypoint = execForm(step)
        break
      case 'HEALTHCHECK':
        image.healthcheck = execForm(step)
        break
      case 'CMD':
        break
      default:
        throw new Error(`${step.getKeyword()} isn't known here`)
    }
  }
  return image
}

type Lock = { packages: Record<string, { dev?: boolean; link?: boolean }> }

/**
 * Creates what `npm ci --omit=dev` leaves in node_modules: the packages in the lockfile, as `npm ci` has
 * installed them in the checkout.
 */
async function linkInstalled(folder: string): Promise<void> {
  const { packages } = JSON.parse(await readFile(join(folder, 'package-lock.json'), 'utf8')) as Lock
  // Changes through hard links would change the checkout's files. So use hard links only if we run as root, because root needn't change the files'
  // modes.
  const copy = process.getuid?.() === 0 ? '-al' : '-a'
  const places = Map.groupBy(
    Object.keys(packages).filter((path) => {
      const isAtTop = /^node_modules\/(@[^/]+\/)?[^/]+$/.test(path)
      // Packages for other platforms are in the lockfile, but aren't installed.
      return isAtTop && !packages[path]?.dev && existsSync(join(root, path))
    }),
    dirname,
  )
  for (const [place, paths] of places) {
    await mkdir(join(folder, place), { recursive: true })
    await run('cp', [copy, ...paths.map((path) => join(root, path)), join(folder, place)])
  }
}

/** Returns the words of the exec form, such as `["node", "main.js"]`, which runs without a shell. */
function execForm(step: Instruction): string[] {
  const text = step.getArgumentsContent() ?? ''
  return JSON.parse(text.slice(text.indexOf('['))) as string[]
}
