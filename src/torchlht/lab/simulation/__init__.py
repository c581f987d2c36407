"""What questions to an annotator would have brought: strategies of `lht next` played through on labelled data."""
