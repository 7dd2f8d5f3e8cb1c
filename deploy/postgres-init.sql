-- Langfuse keeps its own database beside riverrun's.
CREATE DATABASE langfuse;
