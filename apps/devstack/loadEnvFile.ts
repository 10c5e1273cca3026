/** `node --import`: loads `.env` into the environment. Variables that are already set take precedence. */
import { existsSync } from 'node:fs'

if (existsSync('.env')) process.loadEnvFile('.env')
