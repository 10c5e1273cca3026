import { buy, createShop, type Variables } from './shop.ts'

declare const Bun: {
  argv: string[]
  env: Variables & { PORT: string }
  serve(options: { port: string; hostname: string; fetch: (request: Request) => Promise<Response> }): {
    url: URL
  }
}

const { argv, env } = Bun
const url = argv[2]
if (url) console.log(JSON.stringify(await buy(url, env)))
else
  console.log(`selling ${Bun.serve({ port: env.PORT, hostname: '127.0.0.1', fetch: createShop(env) }).url}`)
